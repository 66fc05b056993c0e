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

CREATE INDEX ops_by_state ON ops (state, updated, scope, key);

CREATE INDEX ops_by_expiry ON ops (expires, scope, key) WHERE expires > 0;

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
