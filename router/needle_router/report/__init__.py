"""What the recorded decisions say: money saved and lost, agreement with the upstream, times and reasons.

Records go through a `Tally` once, which keeps sums and no records; `summary` turns it into a `Report`; `document`,
`page` and the command line only show one. Pure: clock, time zone and ledger belong to the caller.
"""
