use super::site::Site;
#[tokio::test(flavor = "multi_thread")]
#[ignore = "manual"]
async fn manual() {
    let site = Site::new().await;
    let mut options = super::MountOptions::default();
    if let Ok(given) = std::env::var("OPTS") {
        options.apply(&given).unwrap();
    }
    let (one, two) = (site.mount_with(options.clone()).await, site.mount_with(options).await);
    std::fs::write(
        "/tmp/pc/manual-paths",
        format!(
            "{}\n{}\n{}\n",
            one.path().display(),
            two.path().display(),
            site.export().display()
        ),
    )
    .unwrap();
    while !std::path::Path::new("/tmp/pc/manual-stop").exists() {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
    std::fs::remove_file("/tmp/pc/manual-stop").unwrap();
    one.unmount().await;
    two.unmount().await;
}
