"""Reads `penstock.yml`, and finds its errors before any pipeline runs."""
