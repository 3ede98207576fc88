"""Coordinators of groups on this broker: loading, appending, answering for the pure ones."""
