"""From records to tables and a report: each mean and verdict is a function of records."""
