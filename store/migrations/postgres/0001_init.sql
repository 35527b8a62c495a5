-- One row a session: what it is, and the counters of its transcript. Every write of a session locks this row first, so that the
-- counters are exact, seq is dense, and commit order is seq order.
create table agent_sessions (
    session_uid      text        primary key,
    namespace        text        not null,
    namespace_uid    text        not null,
    name             text        not null,
    mode             text        not null,
    attempt          bigint      not null default 0,
    nonce            text        not null default '',
    parts            bigint      not null default 0,
    bytes            bigint      not null default 0,
    last_seq         bigint      not null default 0,
    turn_parts       text        not null default '{}',
    created_at       timestamptz not null,
    last_activity_at timestamptz not null,
    deleted_at       timestamptz
) with (fillfactor = 70);
comment on table agent_sessions is 'One row a session: what it is, and the counters of its transcript.';
comment on column agent_sessions.turn_parts is 'Parts stored by turn, a JSON object: a counter like the others, under the same lock.';

-- The session of a name, newest first, and the list of a namespace's sessions. No counter stands in an index: an append stays a
-- heap-only update.
create index agent_sessions_by_name on agent_sessions (namespace, name, created_at desc);
create index agent_sessions_by_age on agent_sessions (namespace, created_at desc);

-- One row a turn: the prompt, who ran it, and the one verdict that stands.
create table agent_session_turns (
    session_uid    text        not null references agent_sessions on delete cascade,
    turn           bigint      not null,
    client_id      text,
    prompt         text        not null,
    state          text        not null check (state in ('accepted', 'running', 'harvesting', 'settled')),
    attempt        bigint,
    pod_uid        text,
    image          text,
    outcome        text,
    reason         text,
    verdict        text,
    verdict_reason text,
    message        text,
    usage          text,
    accepted_at    timestamptz not null,
    started_at     timestamptz,
    settled_at     timestamptz,
    primary key (session_uid, turn),
    check ((state = 'settled') = (outcome is not null)),
    check ((state = 'settled') = (verdict is not null))
);
comment on table agent_session_turns is 'One row a turn: the prompt, who ran it, and the one verdict that stands.';

-- The sweep asks for sessions with an active turn: few, whatever the history.
create index agent_session_turns_active on agent_session_turns (session_uid) where state <> 'settled';

-- One row a part: the JSON text of a chunk of the UI message stream, verbatim. Text, not jsonb: jsonb refuses an escaped U+0000 and a
-- lone surrogate and keeps neither key order nor numbers. No foreign key: it would cost a look-up a row, and every writer holds the
-- session's row; the trigger below is the cascade.
create table agent_session_parts (
    seq         bigint      not null,
    created_at  timestamptz not null,
    turn        bigint      not null,
    part_index  bigint      not null,
    digest      bigint      not null,
    session_uid text        not null,
    part        text        not null,
    primary key (session_uid, turn, part_index)
);
comment on table agent_session_parts is 'One row a part: a chunk of the UI message stream, verbatim, with its place in insertion order.';
comment on column agent_session_parts.digest is 'First eight bytes of the SHA-256 of part: tells the same part again from another one.';

-- Insertion order, for readers with a cursor.
create unique index agent_session_parts_by_seq on agent_session_parts (session_uid, seq);

create function agent_session_parts_cascade() returns trigger language plpgsql as $$
begin
    delete from agent_session_parts where session_uid = old.session_uid;
    return null;
end
$$;

create trigger agent_session_parts_cascade after delete on agent_sessions
    for each row execute function agent_session_parts_cascade();

-- One row an attach ticket that was used, until the ticket would have expired anyway: a ticket is good once.
create table attach_nonces (
    nonce      text        primary key,
    expires_at timestamptz not null
);
comment on table attach_nonces is 'One row a used attach ticket, until it expires.';

create index attach_nonces_by_expiry on attach_nonces (expires_at);
