"""Requests about clients and to them."""
