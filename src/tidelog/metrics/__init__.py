"""Counters, histograms and the page that Prometheus scrapes, without a clock, a socket or a library.

counters    plain integers on the objects that exist anyway, read when a page is made
Histogram   log-scale buckets of whole microseconds; 0.2 us an observation
Page        families of samples in Prometheus's text format, filled and written in slices
"""
