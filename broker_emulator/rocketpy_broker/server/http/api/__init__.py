"""The JSON API: methods of rocketpy.v1 as routes below `/api/v1`."""
