"""Agents, sessions and runs on trio, with a memory that is verified, admitted and audited."""
