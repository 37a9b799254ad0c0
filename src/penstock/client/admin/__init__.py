"""Admin client: topics, settings, groups, brokers, features, the metadata quorum, partition reassignments.

Invariant: methods for one object raise its refusal; methods for several return it in the place of a result.
"""
