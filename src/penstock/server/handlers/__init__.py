"""One file per API family. A handler translates: wire → command → wire. It decides nothing and keeps nothing."""
