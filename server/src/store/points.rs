//! The curve of a job: the points of each report in one row, read back thinned.

use std::collections::BTreeMap;

use app::console::MetricPoint;
use engine::{
    ids::{JobId, TaskId},
    record::PointsRecord,
    sync::Point,
    time::Time,
};
use sqlx::AnyConnection;

use super::{
    StoreError,
    sql::{Doing, attempt_number, big, count, from_doc, get, number, to_doc},
};

/// Most points in one answer.
pub const LIMIT: usize = 2_000;
/// Points that are read for one answer; of a longer curve every n-th row is read, so its whole length stays in view.
const READ_LIMIT: u64 = 200_000;

/// A point as it is kept: step, microseconds, loss, samples.
type Kept = (u64, i64, Option<f64>, Option<u64>);

/// One point of the curve before it is shown; `launch` is the attempt's number and the launch.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Loss {
    launch: (u32, u32),
    step: u64,
    at: Time,
    value: f64,
}

/// Keeps the points of one report.
///
/// # Errors
/// The database failed.
pub async fn keep(
    conn: &mut AnyConnection,
    job_id: &JobId,
    task_id: &TaskId,
    record: &PointsRecord,
) -> Result<(), StoreError> {
    let Some(first_step) = record.points.iter().map(|point| point.step).min() else { return Ok(()) };
    let kept: Vec<Kept> = record.points.iter().map(to_kept).collect();
    sqlx::query(
        "INSERT INTO points (job_id, n, attempt, launch, first_step, total, doc)
         SELECT $1, COALESCE(MAX(n), 0) + 1, CAST($2 AS BIGINT), CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), $6
         FROM points WHERE job_id = $1",
    )
    .bind(job_id.as_str().to_owned())
    .bind(attempt_number(task_id)?)
    .bind(i64::from(record.launch))
    .bind(big(first_step))
    .bind(big(kept.len() as u64))
    .bind(to_doc("points", &kept)?)
    .execute(conn)
    .await
    .doing("writing points")?;
    Ok(())
}

/// The loss of a job in the order it was made, at most [`LIMIT`] points: of more, the lowest and the highest of each bucket.
///
/// A point counts (`kept`) unless a later launch began at its step or before it: that launch makes the step again, or has
/// already lost it.
///
/// # Errors
/// The database failed.
pub async fn loss(conn: &mut AnyConnection, job_id: &JobId) -> Result<Vec<MetricPoint>, StoreError> {
    let launches = launches(conn, job_id).await?;
    let lost_from = lost_from(&launches);
    let stride = launches.values().map(|launch| launch.points).sum::<u64>().div_ceil(READ_LIMIT).max(1);
    let rows = sqlx::query(
        "SELECT attempt, launch, doc FROM points WHERE job_id = $1 AND n % $2 = 0 ORDER BY n LIMIT $3",
    )
    .bind(job_id.as_str().to_owned())
    .bind(big(stride))
    .bind(big(READ_LIMIT))
    .fetch_all(&mut *conn)
    .await
    .doing("reading points")?;
    // One value a step and launch: until the lowest rank is heard another one's are kept, and its own come later.
    let mut losses = BTreeMap::new();
    for row in &rows {
        let launch = (number(get(row, "attempt")?), number(get(row, "launch")?));
        let kept: Vec<Kept> = from_doc("points of job", job_id, get(row, "doc")?)?;
        losses.extend(kept.into_iter().filter_map(|(step, at, loss, _)| {
            loss.map(|value| ((launch, step), Loss { launch, step, at: Time(at), value }))
        }));
    }
    let losses: Vec<Loss> = losses.into_values().collect();
    let tasks = tasks(conn, job_id, &launches).await?;
    Ok(thin(&losses, LIMIT)
        .into_iter()
        .filter_map(|point| {
            Some(MetricPoint {
                task_id: tasks.get(&point.launch.0)?.clone(),
                launch: point.launch.1,
                step: point.step,
                at: point.at,
                value: point.value,
                kept: lost_from.get(&point.launch).is_none_or(|lost| point.step < *lost),
            })
        })
        .collect())
}

/// What is known of the points of a launch without reading them.
#[derive(Clone, Copy, Debug)]
struct LaunchPoints {
    first_step: u64,
    points: u64,
}

async fn launches(
    conn: &mut AnyConnection,
    job_id: &JobId,
) -> Result<BTreeMap<(u32, u32), LaunchPoints>, StoreError> {
    let rows = sqlx::query(
        "SELECT attempt, launch, MIN(first_step) AS first_step, CAST(SUM(total) AS BIGINT) AS points
         FROM points WHERE job_id = $1 GROUP BY attempt, launch ORDER BY attempt, launch",
    )
    .bind(job_id.as_str().to_owned())
    .fetch_all(conn)
    .await
    .doing("reading which launches have points")?;
    rows.iter()
        .map(|row| {
            let launch = (number(get(row, "attempt")?), number(get(row, "launch")?));
            let first_step = count(get(row, "first_step")?);
            Ok((launch, LaunchPoints { first_step, points: count(get(row, "points")?) }))
        })
        .collect()
}

/// The step from which on each launch's points are lost: where the earliest of all later launches began.
fn lost_from(launches: &BTreeMap<(u32, u32), LaunchPoints>) -> BTreeMap<(u32, u32), u64> {
    let mut lost = u64::MAX;
    let mut from = BTreeMap::new();
    for (launch, points) in launches.iter().rev() {
        from.insert(*launch, lost);
        lost = lost.min(points.first_step);
    }
    from
}

async fn tasks(
    conn: &mut AnyConnection,
    job_id: &JobId,
    launches: &BTreeMap<(u32, u32), LaunchPoints>,
) -> Result<BTreeMap<u32, TaskId>, StoreError> {
    let mut numbers = launches.keys().map(|(attempt, _)| *attempt);
    let Some(first) = numbers.next() else { return Ok(BTreeMap::new()) };
    let last = numbers.next_back().unwrap_or(first);
    let ids = super::attempts::task_ids(conn, job_id, first, last - first + 1).await?;
    Ok(ids.into_iter().filter_map(|id| Some((id.number()?, id))).collect())
}

/// At most `limit` of the points, in their order: the lowest and the highest of each of `limit / 2` buckets of neighbours, so
/// that no spike disappears.
fn thin(points: &[Loss], limit: usize) -> Vec<Loss> {
    if points.len() <= limit {
        return points.to_vec();
    }
    let buckets = limit / 2;
    let mut thinned = Vec::with_capacity(limit);
    for bucket in 0..buckets {
        let range = bucket * points.len() / buckets..(bucket + 1) * points.len() / buckets;
        let by_value = |a: &usize, b: &usize| points[*a].value.total_cmp(&points[*b].value);
        let (lowest, highest) = (range.clone().min_by(by_value), range.max_by(by_value));
        let mut ends: Vec<usize> = lowest.into_iter().chain(highest).collect();
        ends.sort_unstable();
        ends.dedup();
        thinned.extend(ends.into_iter().map(|index| points[index]));
    }
    thinned
}

fn to_kept(point: &Point) -> Kept {
    (point.step, point.at.micros(), point.loss.filter(|loss| loss.is_finite()), point.samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, value: f64) -> Loss {
        Loss { launch: (1, 0), step, at: Time(step as i64), value }
    }

    #[test]
    fn a_short_curve_stays_as_it_is() {
        let points = [point(1, 3.0), point(2, 2.0)];
        assert_eq!(thin(&points, 2), points);
    }

    #[test]
    fn a_long_curve_keeps_its_order_its_limit_and_its_spike() {
        let mut points: Vec<_> = (0..10_001).map(|step| point(step, 1.0 / (step + 1) as f64)).collect();
        points[5_003].value = 99.0;
        let thinned = thin(&points, 2_000);
        assert!(thinned.len() <= 2_000, "{}", thinned.len());
        assert!(thinned.iter().any(|point| point.value == 99.0));
        assert!(thinned.is_sorted_by_key(|point| point.step));
        assert_eq!((thinned[0].step, thinned[thinned.len() - 1].step), (0, 10_000));
    }

    #[test]
    fn a_later_launch_that_begins_earlier_takes_the_rest() {
        let launches = [((1, 0), 1, 10), ((1, 1), 41, 10), ((2, 0), 21, 10)]
            .map(|(launch, first_step, points)| (launch, LaunchPoints { first_step, points }));
        let lost = lost_from(&launches.into());
        assert_eq!(lost, [((1, 0), 21), ((1, 1), 21), ((2, 0), u64::MAX)].into());
    }
}
