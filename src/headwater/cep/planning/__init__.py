"""What a query says, as steps of a flow: `order` of queries, then `chain`, `join`, `window` and `selection` of one."""
