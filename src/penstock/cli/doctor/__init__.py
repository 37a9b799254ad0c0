"""`penstock doctor`: checks of this machine, of the network and of the brokers, each with its remedy.

Invariants: a check changes nothing; a problem is reported with its remedy.
"""
