"""`penstock spark …`: runs the pipelines that `penstock.yml` describes."""
