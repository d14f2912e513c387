"""The images and the compose file, without a container engine: what an engine would do is emulated.

tests/docker/builds.py tells what is as in an image, and what is not.
"""
