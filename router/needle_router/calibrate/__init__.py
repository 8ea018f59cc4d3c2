"""Certified thresholds: the lowest score at which the error among answered calls is at most alpha, with a proof.

A threshold that looks good on a sample breaks its promise in up to half of all samples, because it was chosen where the
sample happened to be lucky. The rules here pay for the choice: with probability 1 - delta over the sample, what they
return keeps the promise, and where the data do not suffice they return nothing. Pure: samples in, certificates out.
"""
