//! Black-box tests and their lab.
