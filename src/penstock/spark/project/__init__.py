"""`penstock.yml`: what the file says, and everything that can be wrong with it before anything runs."""
