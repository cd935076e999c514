"""The tables of the search index, in the archive's SQLite file."""

import sqlite3

from ownwords.ask.chunks import CHUNKS_VERSION

TOKENIZER = "porter unicode61 remove_diacritics 2"

# Increased whenever the tables below change; they are then rebuilt.
_VERSION = f"3.{CHUNKS_VERSION}"

# Random, because a counter would restart in a rebuilt archive and repeat old values.
_ANOTHER_GENERATION = "INSERT OR REPLACE INTO meta VALUES ('ask_generation', hex(randomblob(8)))"

_TRIGGERS = ("chunk_added", "chunk_removed", "document_removed")
_OURS = ("vectors", "chunk_search", "chunk_texts", "chunks", "indexed")

# The `sought_` columns hold the searchable form where it differs from the text shown. Triggers keep
# the index consistent when `look` deletes a document and, by cascade, its chunks.
_SCHEMA = (
    """CREATE TABLE indexed (
        document TEXT PRIMARY KEY REFERENCES documents(id) ON DELETE CASCADE,
        key TEXT NOT NULL, whose TEXT NOT NULL, folded_title TEXT NOT NULL, words INTEGER NOT NULL
    )""",
    "CREATE INDEX indexed_by_title ON indexed(folded_title)",
    """CREATE TABLE chunks (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        document TEXT NOT NULL REFERENCES documents(id) ON DELETE CASCADE,
        number INTEGER NOT NULL, heading TEXT NOT NULL, text TEXT NOT NULL, words INTEGER NOT NULL,
        whose TEXT NOT NULL, segments TEXT NOT NULL, sought_title TEXT NOT NULL,
        sought_heading TEXT, sought_date TEXT NOT NULL, sought_text TEXT, checksum BLOB NOT NULL
    )""",
    "CREATE INDEX chunks_of ON chunks(document, number)",
    """CREATE VIEW chunk_texts AS
        SELECT id, sought_title AS title, coalesce(sought_heading, heading) AS heading,
        sought_date AS date, coalesce(sought_text, text) AS text FROM chunks""",
    f"""CREATE VIRTUAL TABLE chunk_search USING fts5(
        title, heading, date, text, content='chunk_texts', content_rowid='id',
        tokenize='{TOKENIZER}'
    )""",
    """CREATE TRIGGER chunk_added AFTER INSERT ON chunks BEGIN
        INSERT INTO chunk_search(rowid, title, heading, date, text) VALUES (new.id,
        new.sought_title, coalesce(new.sought_heading, new.heading), new.sought_date,
        coalesce(new.sought_text, new.text)); END""",
    """CREATE TRIGGER chunk_removed AFTER DELETE ON chunks BEGIN
        INSERT INTO chunk_search(chunk_search, rowid, title, heading, date, text) VALUES ('delete',
        old.id, old.sought_title, coalesce(old.sought_heading, old.heading), old.sought_date,
        coalesce(old.sought_text, old.text)); END""",
    f"""CREATE TRIGGER document_removed AFTER DELETE ON indexed BEGIN {_ANOTHER_GENERATION}; END""",
    """CREATE TABLE vectors (
        chunk INTEGER NOT NULL REFERENCES chunks(id) ON DELETE CASCADE, name TEXT NOT NULL,
        codes BLOB NOT NULL, scales BLOB NOT NULL, PRIMARY KEY (chunk, name)
    ) WITHOUT ROWID""",
)


def are_current(db: sqlite3.Connection) -> bool:
    """Whether the tables exist in this version."""
    return meta(db, "ask_version") == _VERSION


def state_of(db: sqlite3.Connection) -> str:
    """The key of the archive's content, written by `look`; empty if `look` did not write it."""
    return meta(db, "state")


def is_up_to_date(db: sqlite3.Connection) -> bool:
    """Whether the tables match the archive's content."""
    state = state_of(db)
    return bool(state) and state == meta(db, "ask_state") and are_current(db)


def mark_up_to_date(db: sqlite3.Connection) -> None:
    """Note that the tables match the archive's content."""
    db.execute("INSERT OR REPLACE INTO meta VALUES ('ask_state', ?)", (state_of(db),))


def recreate_tables(db: sqlite3.Connection) -> None:
    """Replace the tables by empty ones."""
    kinds = dict(db.execute("SELECT name, type FROM sqlite_master").fetchall())
    for trigger in _TRIGGERS:
        db.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    for name in _OURS:
        if name in kinds:
            db.execute(f"DROP {kinds[name]} {name}")
    for statement in _SCHEMA:
        db.execute(statement)
    db.execute("INSERT OR REPLACE INTO meta VALUES ('ask_version', ?)", (_VERSION,))


def generation(db: sqlite3.Connection) -> str:
    """A string that changes whenever the tables change."""
    return meta(db, "ask_generation")


def new_generation(db: sqlite3.Connection) -> None:
    """Change `generation`."""
    db.execute(_ANOTHER_GENERATION)


def meta(db: sqlite3.Connection, key: str) -> str:
    """The value of a key in the archive's meta table; empty if there is none."""
    row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return row[0] if row else ""
