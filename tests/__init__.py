"""Tests by kind: `unit property scenarios golden simulation system compatibility spark fuzz`."""
