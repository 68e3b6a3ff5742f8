"""The paper's centralised networks on PyG's layers, one class of options and one module each.

All have two layers, no bias and no dropout, and draw their weights from an explicit generator.
"""
