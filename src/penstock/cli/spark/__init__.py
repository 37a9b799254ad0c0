"""`penstock spark …`: runs the pipelines that `penstock.yml` describes.

Invariant: errors in `penstock.yml` are reported before any pipeline runs.
"""
