-- Times are microseconds since 1970 in UTC.

-- One row a session: what it is, and the counters of its transcript. There is one writer, so the counters are exact, seq is dense, and
-- commit order is seq order. turn_parts = parts stored by turn, a JSON object. id = a short name for the parts' keys.
create table agent_sessions (
    id               integer primary key,
    session_uid      text    not null unique,
    namespace        text    not null,
    namespace_uid    text    not null,
    name             text    not null,
    mode             text    not null,
    attempt          integer not null default 0,
    nonce            text    not null default '',
    parts            integer not null default 0,
    bytes            integer not null default 0,
    last_seq         integer not null default 0,
    turn_parts       text    not null default '{}',
    created_at       integer not null,
    last_activity_at integer not null,
    deleted_at       integer
) strict;

-- The session of a name, newest first, and the list of a namespace's sessions.
create index agent_sessions_by_name on agent_sessions (namespace, name, created_at desc);
create index agent_sessions_by_age on agent_sessions (namespace, created_at desc);

-- One row a turn: the prompt, who ran it, and the one verdict that stands.
create table agent_session_turns (
    session_uid    text    not null references agent_sessions (session_uid) on delete cascade,
    turn           integer not null,
    client_id      text,
    prompt         text    not null,
    state          text    not null check (state in ('accepted', 'running', 'harvesting', 'settled')),
    attempt        integer,
    pod_uid        text,
    image          text,
    outcome        text,
    reason         text,
    verdict        text,
    verdict_reason text,
    message        text,
    usage          text,
    accepted_at    integer not null,
    started_at     integer,
    settled_at     integer,
    primary key (session_uid, turn),
    check ((state = 'settled') = (outcome is not null)),
    check ((state = 'settled') = (verdict is not null))
) strict;

-- The sweep asks for sessions with an active turn: few, whatever the history.
create index agent_session_turns_active on agent_session_turns (session_uid) where state <> 'settled';

-- One row a part: the JSON text of a chunk of the UI message stream, verbatim. id = the session's id * 2^32 + seq, so the table itself is
-- in insertion order, a reader with a cursor walks it, and new parts go to the end of their session. digest = first eight bytes of the
-- SHA-256 of part: tells the same part again from another one. No foreign key: it would cost a look-up a row, and the one writer has
-- just read the session; the trigger below is the cascade.
create table agent_session_parts (
    id         integer primary key,
    session    integer not null,
    turn       integer not null,
    part_index integer not null,
    created_at integer not null,
    digest     integer not null,
    part       text    not null
) strict;

-- Identity, stored once; also the order of replay.
create unique index agent_session_parts_by_identity on agent_session_parts (session, turn, part_index);

create trigger agent_session_parts_cascade after delete on agent_sessions
begin
    delete from agent_session_parts where id between old.id << 32 and (old.id << 32) + 4294967295;
end;

-- One row an attach ticket that was used, until the ticket would have expired anyway: a ticket is good once.
create table attach_nonces (
    nonce      text    not null primary key,
    expires_at integer not null
) strict, without rowid;

create index attach_nonces_by_expiry on attach_nonces (expires_at);
