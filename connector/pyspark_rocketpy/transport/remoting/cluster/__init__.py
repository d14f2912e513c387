"""A cluster's name servers, routes, topics, groups and bounds."""
