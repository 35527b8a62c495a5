//! The SQL that both backends share. The two dialects differ in the clock, the lock and the last resort of an order, which are filled in.

/// Every shared statement in one dialect.
#[derive(Debug)]
pub(crate) struct Statements {
    pub now: &'static str,
    pub insert_session: &'static str,
    pub session: &'static str,
    pub lock_session: &'static str,
    pub touch_session: &'static str,
    pub advance_session: &'static str,
    pub open_attempt: &'static str,
    pub mark_deleted: &'static str,
    pub delete_session: &'static str,
    pub active_sessions: &'static str,
    pub find_session: &'static str,
    pub find_session_by_uid: &'static str,
    pub list_sessions: &'static str,
    pub turns: &'static str,
    pub turn: &'static str,
    pub insert_turn: &'static str,
    pub insert_lost_turn: &'static str,
    pub start_turn: &'static str,
    pub begin_harvest: &'static str,
    pub settle: &'static str,
    pub upgrade: &'static str,
    pub runs: &'static str,
}

macro_rules! session_columns {
    () => {
        "session_uid, namespace, namespace_uid, name, mode, attempt, nonce, parts, bytes, last_seq, turn_parts, created_at, \
         last_activity_at, deleted_at"
    };
}

macro_rules! turn_columns {
    () => {
        "turn, client_id, prompt, state, attempt, pod_uid, image, outcome, reason, verdict, verdict_reason, message, usage, accepted_at, \
         started_at, settled_at"
    };
}

macro_rules! statements {
    (now: $now:literal, lock: $lock:literal, last_resort: $last:literal, parts_of: $parts_of:literal) => {
        Statements {
            now: concat!("select ", $now, " as now"),
            insert_session: concat!(
                "insert into agent_sessions (session_uid, namespace, namespace_uid, name, mode, created_at, last_activity_at) \
                 values ($1, $2, $3, $4, $5, ",
                $now,
                ", ",
                $now,
                ") on conflict (session_uid) do nothing"
            ),
            session: concat!("select ", session_columns!(), " from agent_sessions where session_uid = $1"),
            lock_session: concat!("select ", session_columns!(), " from agent_sessions where session_uid = $1", $lock),
            touch_session: concat!("update agent_sessions set last_activity_at = ", $now, " where session_uid = $1"),
            advance_session: concat!(
                "update agent_sessions set parts = $2, bytes = $3, last_seq = $4, turn_parts = $5, last_activity_at = ",
                $now,
                " where session_uid = $1"
            ),
            open_attempt: concat!(
                "update agent_sessions set attempt = $2, nonce = $3, last_activity_at = ",
                $now,
                " where session_uid = $1 and attempt = $4"
            ),
            mark_deleted: concat!(
                "update agent_sessions set deleted_at = ",
                $now,
                " where session_uid = $1 and deleted_at is null"
            ),
            delete_session: "delete from agent_sessions where session_uid = $1",
            active_sessions: concat!(
                "select ",
                session_columns!(),
                " from agent_sessions where session_uid in (select session_uid from agent_session_turns where state <> 'settled') \
                 order by created_at, session_uid"
            ),
            find_session: concat!(
                "select ",
                session_columns!(),
                " from agent_sessions where namespace = $1 and name = $2 order by created_at desc, ",
                $last,
                " limit 1"
            ),
            find_session_by_uid: concat!(
                "select ",
                session_columns!(),
                " from agent_sessions where session_uid = $3 and namespace = $1 and name = $2"
            ),
            list_sessions: concat!(
                "select ",
                session_columns!(),
                " from agent_sessions where namespace = $1 order by created_at desc, ",
                $last,
                " limit $2"
            ),
            turns: concat!("select ", turn_columns!(), " from agent_session_turns where session_uid = $1 order by turn"),
            turn: concat!("select ", turn_columns!(), " from agent_session_turns where session_uid = $1 and turn = $2"),
            insert_turn: concat!(
                "insert into agent_session_turns (session_uid, turn, client_id, prompt, state, accepted_at) \
                 values ($1, $2, $3, $4, 'accepted', ",
                $now,
                ") on conflict (session_uid, turn) do nothing"
            ),
            insert_lost_turn: concat!(
                "insert into agent_session_turns (session_uid, turn, client_id, prompt, state, outcome, reason, verdict, verdict_reason, \
                 accepted_at, settled_at) values ($1, $2, $3, $4, 'settled', $5, $6, $7, $6, ",
                $now,
                ", ",
                $now,
                ") on conflict (session_uid, turn) do nothing"
            ),
            start_turn: concat!(
                "update agent_session_turns set state = 'running', attempt = $3, pod_uid = $4, image = $5, started_at = ",
                $now,
                " where session_uid = $1 and turn = $2 and state = 'accepted'"
            ),
            begin_harvest: "update agent_session_turns set state = 'harvesting' \
                            where session_uid = $1 and turn = $2 and state = 'running' and attempt = $3",
            settle: concat!(
                "update agent_session_turns set state = 'settled', outcome = $5, reason = $6, verdict = $7, verdict_reason = $8, \
                 message = $9, usage = $10, settled_at = ",
                $now,
                " where session_uid = $1 and turn = $2 and state <> 'settled' and attempt is not distinct from $3 \
                 and pod_uid is not distinct from $4"
            ),
            // Of an attempt that ran (equality, so none never matches); when it was settled first stays.
            upgrade: "update agent_session_turns set outcome = $5, reason = $6, verdict = $7, verdict_reason = $8, message = $9, \
                      usage = coalesce($10, usage) where session_uid = $1 and turn = $2 and state = 'settled' \
                      and verdict in ('Incomplete', 'Truncated') and attempt = $3 and pod_uid is not distinct from $4",
            // Neighbouring indexes keep the same distance to their row number: a few runs instead of every index.
            runs: concat!(
                "select min(part_index) as first, max(part_index) as last from (select part_index, part_index - row_number() over \
                 (order by part_index) as run from agent_session_parts where ",
                $parts_of,
                " and turn = $2) as numbered group by run order by 1"
            ),
        }
    };
}

/// Postgres. Isolation is read committed, so a statement after the lock sees what the earlier holders committed.
pub(crate) static POSTGRES: Statements = statements!(
    now: "clock_timestamp()",
    lock: " for update",
    last_resort: "session_uid desc",
    parts_of: "session_uid = $1"
);

/// SQLite. The writer's transaction is immediate: it holds the one lock there is.
pub(crate) static SQLITE: Statements = statements!(
    now: "cast(unixepoch('subsec') * 1000000 as integer)",
    lock: "",
    last_resort: "id desc",
    parts_of: "session = (select id from agent_sessions where session_uid = $1)"
);
