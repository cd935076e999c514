-- The tables of archive.sqlite; increment VERSION in store.py when they change.
CREATE TABLE documents (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL, status TEXT NOT NULL,
    title TEXT NOT NULL, date TEXT, url TEXT NOT NULL, author TEXT NOT NULL, tags TEXT NOT NULL,
    key TEXT NOT NULL, dropped TEXT NOT NULL, hash TEXT NOT NULL,
    features BLOB NOT NULL
);
CREATE TABLE segments (
    id INTEGER PRIMARY KEY, document TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
    position INTEGER NOT NULL, kind TEXT NOT NULL, text TEXT NOT NULL, detail TEXT NOT NULL
);
CREATE INDEX segments_of ON segments(document, position);
CREATE INDEX segments_by_kind ON segments(kind) WHERE kind = 'log';
CREATE TABLE selection (
    document TEXT PRIMARY KEY REFERENCES documents(id) ON DELETE CASCADE,
    decision TEXT NOT NULL, training_words INTEGER NOT NULL, split TEXT NOT NULL
);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
