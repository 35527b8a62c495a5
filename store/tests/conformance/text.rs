//! Text goes in and comes out byte for byte, whatever is in it, the same on both.

use agentsession_store::{Settlement, StoreError};
use transcript::{Attempt, Turn, Verdict};

use crate::fixture::{World, new_turn, pod, settlement};

async fn hostile_parts_come_back_byte_for_byte(world: World) {
    let writer = world.writer().await;
    let big = format!("{{\"type\":\"text-delta\",\"delta\":\"{}\"}}", "é".repeat(524_000));
    assert!(big.len() > 1 << 19 && big.len() <= 1 << 20);
    let parts = [
        r#"{"delta":"a\u0000b"}"#,
        r#"{"delta":"a\\u0000b"}"#,
        r#"{"delta":"\ud83e"}"#,
        r#"{"delta":"\udd16 reversed \ud83e"}"#,
        r#"{"b":1,"a":2,"b":3}"#,
        r#"{"n":1.0,"big":123456789012345678901234567890,"e":1e400}"#,
        "{\"delta\":\"\u{1f916}\u{202e}\u{feff}\u{7f}\u{fffd}\u{10ffff}\"}",
        "  {\t\"spaced\" : true }  ",
        r#"{"quote":"'; drop table agent_sessions; --"}"#,
        r#"{"copy":"\\.\n\\N\t"}"#,
        "",
        big.as_str(),
    ];
    let indexed: Vec<_> = parts.iter().zip(0..).map(|(part, index)| (index, *part)).collect();
    assert_eq!(world.append(&writer, &indexed).await.unwrap().inserted as usize, parts.len());
    let stored = world.all_parts(&writer.session).await;
    assert!(stored.iter().map(|part| part.part.as_str()).eq(parts));
    assert_eq!(world.append(&writer, &indexed).await.unwrap().already as usize, parts.len());
}

async fn a_raw_nul_in_a_part_spares_its_neighbours(world: World) {
    let writer = world.writer().await;
    let parts = [(0, "before"), (1, "ra\0w"), (2, "after")];
    assert_eq!(world.append(&writer, &parts).await.unwrap().inserted, 3);
    let stored: Vec<_> = world.all_parts(&writer.session).await.into_iter().map(|part| part.part).collect();
    assert_eq!(stored, ["before", "ra\u{fffd}w", "after"]);
    assert_eq!(world.append(&writer, &parts).await.unwrap().already, 3);
}

async fn a_nul_anywhere_else_becomes_the_replacement_character(world: World) {
    let mut session = world.new_session("ti\0tle");
    session.mode = "Inter\0active".to_owned();
    world.store.ensure_session(&session).await.unwrap();
    let found = world.store.find_session(&world.namespace, "ti\0tle", None).await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.mode.as_str()), ("ti\u{fffd}tle", "Inter\u{fffd}active"));

    let mut turn = new_turn(&session.uid, 1, "pro\0mpt \\u0000");
    turn.client_id = Some("cli\0ent".to_owned());
    let accepted = world.store.accept_turn(&turn).await.unwrap();
    assert_eq!(accepted.prompt, "pro\u{fffd}mpt \\u0000");
    assert_eq!(accepted.client_id.as_deref(), Some("cli\u{fffd}ent"));

    let opened = world.store.open_attempt(&session.uid, Attempt(1), "non\0ce").await.unwrap();
    assert_eq!(opened, (Attempt(1), "non\u{fffd}ce".to_owned()));
    let started = world.store.start_turn(&session.uid, Turn(1), Attempt(1), &pod(1), "ima\0ge").await.unwrap();
    assert_eq!(started.image.as_deref(), Some("ima\u{fffd}ge"));

    let writer =
        agentsession_store::Writer { session: session.uid, turn: Turn(1), attempt: Attempt(1), quota_bytes: 100 };
    let failed = Settlement { message: Some("boo\0m".to_owned()), ..settlement(&writer, Verdict::Incomplete) };
    let standing = world.store.settle(&failed).await.unwrap();
    assert_eq!(standing.record.message.as_deref(), Some("boo\u{fffd}m"));
    let nobody = world.store.settle(&Settlement { session: "no\0body".into(), ..failed }).await;
    assert!(matches!(nobody, Err(StoreError::SessionUnknown(_))));
}

async fn names_and_messages_of_any_script_are_kept(world: World) {
    let writer = world.writer().await;
    let message = "nœud perdu — 节点丢失 🤖 '\"\\ %s $1 {}".to_owned();
    let mine = Settlement { message: Some(message.clone()), ..settlement(&writer, Verdict::Incomplete) };
    assert_eq!(world.store.settle(&mine).await.unwrap().record.message, Some(message));
}

crate::on_both!(
    hostile_parts_come_back_byte_for_byte,
    a_raw_nul_in_a_part_spares_its_neighbours,
    a_nul_anywhere_else_becomes_the_replacement_character,
    names_and_messages_of_any_script_are_kept,
);
