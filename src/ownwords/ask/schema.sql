-- The tables of the search in archive.sqlite, separated by blank lines; increase _VERSION in index.py
-- when they change. `chunk_search` holds the searched text, with spaces between its ideographs.
-- Triggers keep the index consistent when `look` deletes a document and, by cascade, its chunks.

CREATE TABLE indexed (
    document TEXT PRIMARY KEY REFERENCES documents(id) ON DELETE CASCADE,
    key TEXT NOT NULL, whose TEXT NOT NULL, folded_title TEXT NOT NULL
);

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
    heading TEXT NOT NULL, text TEXT NOT NULL, whose TEXT NOT NULL
);

CREATE INDEX chunks_of ON chunks(document);

CREATE VIRTUAL TABLE chunk_search USING fts5(
    title, heading, date, text, tokenize='porter unicode61 remove_diacritics 2');

CREATE TABLE vectors (
    chunk INTEGER NOT NULL REFERENCES chunks(id) ON DELETE CASCADE, name TEXT NOT NULL,
    codes BLOB NOT NULL, scales BLOB NOT NULL, PRIMARY KEY (chunk, name)
) WITHOUT ROWID;

CREATE TRIGGER chunk_removed AFTER DELETE ON chunks BEGIN
    DELETE FROM chunk_search WHERE rowid = old.id; END;

CREATE TRIGGER document_removed AFTER DELETE ON indexed BEGIN
    INSERT OR REPLACE INTO meta VALUES ('ask_generation', hex(randomblob(8))); END;
