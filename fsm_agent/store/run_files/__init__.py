"""The files of a `FolderStore`: how they are locked and written, and the records that they consist of."""
