//! Pages: bounded in rows and bytes, never empty while something follows.

use agentsession_store::{PageLimit, PartPage, Writer};
use transcript::{PartIndex, Seq, Turn};

use crate::fixture::World;

fn indexes(page: &PartPage) -> Vec<u32> {
    page.parts.iter().map(|part| part.index.0).collect()
}

/// Parts 0, 2, 1 in that order of insertion, of 10, 30 and 20 bytes.
async fn three_parts(world: &World) -> Writer {
    let writer = world.writer().await;
    for (index, bytes) in [(0, 10), (2, 30), (1, 20)] {
        world.append(&writer, &[(index, &"x".repeat(bytes))]).await.unwrap();
    }
    writer
}

async fn a_page_ends_at_its_rows(world: World) {
    let session = three_parts(&world).await.session;
    let limit = |rows| PageLimit { rows, ..PageLimit::default() };
    for (rows, first, has_more) in
        [(1, vec![0], true), (2, vec![0, 1], true), (3, vec![0, 1, 2], false), (9, vec![0, 1, 2], false)]
    {
        let page = world.store.parts(&session, None, limit(rows)).await.unwrap();
        assert_eq!((indexes(&page), page.has_more), (first, has_more));
    }
    let page = world.store.rows(&session, Seq(0), limit(2)).await.unwrap();
    assert_eq!((indexes(&page), page.has_more), (vec![0, 2], true));
    let page = world.store.rows(&session, Seq(2), limit(2)).await.unwrap();
    assert_eq!((indexes(&page), page.has_more), (vec![1], false));
}

async fn a_page_ends_at_its_bytes_but_has_one_row(world: World) {
    let session = three_parts(&world).await.session;
    let limit = |bytes| PageLimit { bytes, rows: 10 };
    for (bytes, first, has_more) in
        [(0, vec![0], true), (29, vec![0], true), (30, vec![0, 1], true), (60, vec![0, 1, 2], false)]
    {
        let page = world.store.parts(&session, None, limit(bytes)).await.unwrap();
        assert_eq!((indexes(&page), page.has_more), (first, has_more), "{bytes}");
    }
    let page = world.store.rows(&session, Seq(1), limit(1)).await.unwrap();
    assert_eq!((indexes(&page), page.has_more), (vec![2], true));
    let rows_zero = world.store.rows(&session, Seq(0), PageLimit { rows: 0, bytes: 100 }).await.unwrap();
    assert_eq!((indexes(&rows_zero), rows_zero.has_more), (vec![0], true));
}

async fn identity_order_crosses_turns(world: World) {
    let session = world.session().await;
    let (first, second) = (world.running(&session, 1, 1).await, world.running(&session, 2, 1).await);
    world.append(&second, &[(0, "2.0"), (1, "2.1")]).await.unwrap();
    world.append(&first, &[(5, "1.5"), (3, "1.3")]).await.unwrap();
    let texts = |page: PartPage| page.parts.into_iter().map(|part| part.part).collect::<Vec<_>>();
    let all = world.store.parts(&session, None, PageLimit::default()).await.unwrap();
    assert_eq!(texts(all), ["1.3", "1.5", "2.0", "2.1"]);
    let after = Some((Turn(1), PartIndex(4)));
    let rest = world.store.parts(&session, after, PageLimit { rows: 2, ..PageLimit::default() }).await.unwrap();
    assert!(rest.has_more);
    assert_eq!(texts(rest), ["1.5", "2.0"]);
    let rows = world.store.rows(&session, Seq(1), PageLimit::default()).await.unwrap();
    assert_eq!(texts(rows), ["2.1", "1.5", "1.3"]);
    assert_eq!(
        texts(world.store.parts(&session, Some((Turn(2), PartIndex(1))), PageLimit::default()).await.unwrap()),
        [""; 0]
    );
}

async fn pages_one_after_the_other_are_the_whole(world: World) {
    let writer = world.writer().await;
    let texts: Vec<String> = (0..2500).map(|i| format!("{i}-{}", "y".repeat(i % 977))).collect();
    let parts: Vec<_> = texts.iter().zip(0..).map(|(text, index)| (index, text.as_str())).collect();
    world.append(&writer, &parts).await.unwrap();
    let limit = PageLimit { rows: 700, bytes: 200_000 };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = world.store.parts(&writer.session, after, limit).await.unwrap();
        assert!(page.parts.len() <= 700 && page.parts.iter().map(|part| part.part.len()).sum::<usize>() <= 200_000);
        after = page.parts.last().map(|part| (part.turn, part.index));
        found.extend(page.parts.into_iter().map(|part| part.part));
        if !page.has_more {
            break;
        }
    }
    assert_eq!(found, texts);
}

crate::on_both!(
    a_page_ends_at_its_rows,
    a_page_ends_at_its_bytes_but_has_one_row,
    identity_order_crosses_turns,
    pages_one_after_the_other_are_the_whole,
);
