"""NVFlare as the engine of a deployment: the only room that imports it."""
