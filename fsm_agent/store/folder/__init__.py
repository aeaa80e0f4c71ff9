"""A store in a folder, with a file of JSON lines for each run: the files, their control lines, and the store.

A person reads the files with a pager; nothing here knows what an entry means.
"""

from fsm_agent.store.folder.folder_store import FolderStore

__all__ = ["FolderStore"]
