"""What the messages reveal: attacks as functions of what an adversary receives and stated side knowledge."""
