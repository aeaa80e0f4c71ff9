-- A store of version 1, with the page size that it had: a dump of the file that its code made.
PRAGMA page_size = 2048;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE conversation (name TEXT PRIMARY KEY, version INTEGER NOT NULL, run TEXT NOT NULL) STRICT;
INSERT INTO "conversation" VALUES('customer',2,'turn 2');
CREATE TABLE entry (
            run INTEGER NOT NULL, n INTEGER NOT NULL, line TEXT NOT NULL, PRIMARY KEY (run, n)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "entry" VALUES(2,0,'header');
INSERT INTO "entry" VALUES(2,1,'{"n": 1, "text": "\u00e9\u0000\u2028 0"}');
INSERT INTO "entry" VALUES(2,2,'{"n": 2, "text": "\u00e9\u0000\u2028 1"}');
INSERT INTO "entry" VALUES(2,3,'{"n": 3, "text": "\u00e9\u0000\u2028 2"}');
INSERT INTO "entry" VALUES(2,4,'{"n": 4, "text": "\u00e9\u0000\u2028 3"}');
INSERT INTO "entry" VALUES(2,5,'{"n": 5, "text": "\u00e9\u0000\u2028 4"}');
INSERT INTO "entry" VALUES(2,6,'{"n": 6, "text": "\u00e9\u0000\u2028 5"}');
INSERT INTO "entry" VALUES(2,7,'{"n": 7, "text": "\u00e9\u0000\u2028 6"}');
INSERT INTO "entry" VALUES(2,8,'{"n": 8, "text": "\u00e9\u0000\u2028 7"}');
INSERT INTO "entry" VALUES(2,9,'{"n": 9, "text": "\u00e9\u0000\u2028 8"}');
INSERT INTO "entry" VALUES(2,10,'{"n": 10, "text": "\u00e9\u0000\u2028 9"}');
INSERT INTO "entry" VALUES(2,11,'{"n": 11, "text": "\u00e9\u0000\u2028 10"}');
INSERT INTO "entry" VALUES(2,12,'{"n": 12, "text": "\u00e9\u0000\u2028 11"}');
INSERT INTO "entry" VALUES(2,13,'last');
INSERT INTO "entry" VALUES(3,0,'{"h":1}');
INSERT INTO "entry" VALUES(3,1,'one');
INSERT INTO "entry" VALUES(3,2,'two');
INSERT INTO "entry" VALUES(4,0,'header');
INSERT INTO "entry" VALUES(4,1,'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx');
INSERT INTO "entry" VALUES(5,0,'header');
INSERT INTO "entry" VALUES(6,0,'t1');
INSERT INTO "entry" VALUES(6,1,'a');
INSERT INTO "entry" VALUES(7,0,'t2');
INSERT INTO "entry" VALUES(7,1,'b');
INSERT INTO "entry" VALUES(7,2,'c');
CREATE TABLE post (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            run INTEGER NOT NULL,
            key TEXT NOT NULL,
            body TEXT NOT NULL,
            posted_by TEXT NOT NULL,
            posted REAL NOT NULL
        ) STRICT;
INSERT INTO "post" VALUES(1,3,'ask:1.1','{"kind":"denied"}','ann',1015.0);
INSERT INTO "post" VALUES(2,3,'','hello','',1015.0);
CREATE TABLE question (
            run INTEGER NOT NULL,
            key TEXT NOT NULL,
            kind TEXT NOT NULL,
            about TEXT NOT NULL,
            answers TEXT NOT NULL,
            answered_by TEXT NOT NULL,
            answered REAL,
            PRIMARY KEY (run, key)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "question" VALUES(3,'ask:1.0','approval','"x"','["approved", "denied"]','',NULL);
INSERT INTO "question" VALUES(3,'ask:1.1','approval','"y"','[]','ann',1015.0);
CREATE TABLE run (
            key INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            agent TEXT NOT NULL,
            n INTEGER NOT NULL,
            state TEXT NOT NULL,
            is_ended INTEGER NOT NULL,
            due REAL,
            queued REAL,
            unread INTEGER NOT NULL,
            fence INTEGER NOT NULL,
            tries INTEGER NOT NULL,
            holder TEXT NOT NULL,
            instance TEXT NOT NULL,
            since REAL NOT NULL,
            until REAL,
            given_back INTEGER NOT NULL,
            created REAL NOT NULL,
            updated REAL NOT NULL
        ) STRICT;
INSERT INTO "run" VALUES(2,'ended','a',13,'Completed',1,NULL,NULL,0,1,0,'w','abead9055c4a451d9c4f6d66829f8b9f',1000.0,NULL,12,1000.0,1013.0);
INSERT INTO "run" VALUES(3,'asks','b',2,'ToolInterrupt',0,0.0,1015.0,2,1,0,'w','abead9055c4a451d9c4f6d66829f8b9f',1014.0,NULL,0,1014.0,1014.0);
INSERT INTO "run" VALUES(4,'timed','a',1,'Backoff',0,5000.0,5000.0,0,1,0,'w','abead9055c4a451d9c4f6d66829f8b9f',1016.0,NULL,0,1016.0,1016.0);
INSERT INTO "run" VALUES(5,'new','a',0,'',0,0.0,1017.0,0,0,0,'','',0.0,NULL,-1,1017.0,1017.0);
INSERT INTO "run" VALUES(6,'turn 1','c',1,'Completed',1,NULL,NULL,0,1,0,'w','abead9055c4a451d9c4f6d66829f8b9f',1018.0,NULL,0,1018.0,1018.0);
INSERT INTO "run" VALUES(7,'turn 2','c',2,'',0,0.0,1019.0,0,1,0,'w','abead9055c4a451d9c4f6d66829f8b9f',1019.0,1079.0,-1,1019.0,1020.0);
CREATE TABLE snapshot (run INTEGER PRIMARY KEY, n INTEGER NOT NULL, record BLOB NOT NULL) STRICT;
INSERT INTO "snapshot" VALUES(2,13,X'00656E646564FF');
INSERT INTO "snapshot" VALUES(3,2,X'61736B73');
CREATE INDEX run_free ON run (agent, due, queued) WHERE until IS NULL AND due IS NOT NULL;
CREATE INDEX run_held ON run (instance, until) WHERE until IS NOT NULL AND due IS NOT NULL;
CREATE INDEX run_updated ON run (agent, updated);
CREATE INDEX question_open ON question (run) WHERE answered IS NULL;
CREATE INDEX post_of_run ON post (run);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('post',2);
COMMIT;
PRAGMA application_id = 1718840673;
PRAGMA user_version = 1;
