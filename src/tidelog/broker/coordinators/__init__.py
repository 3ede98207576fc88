"""Coordinators of groups and of transactions on this broker: loading, appending, answering for the pure ones."""
