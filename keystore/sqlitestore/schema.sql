CREATE TABLE ops (
	id       INTEGER PRIMARY KEY,
	scope    TEXT    NOT NULL,
	key      TEXT    NOT NULL,
	version  INTEGER NOT NULL,
	writer   TEXT    NOT NULL,
	state    INTEGER NOT NULL,
	updated  INTEGER NOT NULL,
	deadline INTEGER NOT NULL,
	expires  INTEGER NOT NULL,
	rec      BLOB    NOT NULL,
	UNIQUE (scope, key)
) STRICT;

-- Both indexes end in the row id, which makes their order total. They hold the
-- scope so that narrowing to one does not read the records of the others.
CREATE INDEX ops_by_state ON ops (state, updated, scope);

CREATE INDEX ops_by_expiry ON ops (expires, scope) WHERE expires <> 0;

CREATE TABLE bodies (
	op   INTEGER PRIMARY KEY,
	body BLOB NOT NULL
) STRICT;

CREATE TABLE leases (
	scope    TEXT    NOT NULL,
	run      TEXT    NOT NULL,
	owner    TEXT    NOT NULL,
	token    INTEGER NOT NULL,
	acquired INTEGER NOT NULL,
	expires  INTEGER NOT NULL,
	version  INTEGER NOT NULL,
	writer   TEXT    NOT NULL,
	PRIMARY KEY (scope, run)
) STRICT, WITHOUT ROWID;

-- The store's clock as it was last written, in one row.
CREATE TABLE clock (
	id  INTEGER PRIMARY KEY CHECK (id = 1),
	now INTEGER NOT NULL
) STRICT;

INSERT INTO clock (id, now) VALUES (1, 0);
