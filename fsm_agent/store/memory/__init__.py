"""A store in memory: for tests, and for runs that need not outlive their OS process."""

from fsm_agent.store.memory.memory_store import MemoryStore

__all__ = ["MemoryStore"]
