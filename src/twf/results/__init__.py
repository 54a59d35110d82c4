"""From a run to tables and a report: everything here is a function of the runs' records."""
