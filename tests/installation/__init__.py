"""What a user installs, in fresh environments; not part of the tests that pytest runs."""
