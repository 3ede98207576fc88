"""Who uses a simulated cluster: producers, consumers, groups, transactions, administrators, old tools."""
