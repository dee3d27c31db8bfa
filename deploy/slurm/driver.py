"""A fit on SLURM jobs that come and go with the work: `python driver.py IN OUT BANDWIDTH`."""

import sys
from contextlib import suppress

import dask
from dask_jobqueue import SLURMCluster
from distributed import Client, Security

import dshift

if __name__ == "__main__":
    source, store, bandwidth = sys.argv[1:]
    # TLS where DASK_DISTRIBUTED__COMM__TLS__* name certificates, as README.md says.
    tls = dask.config.get("distributed.comm.tls.ca-file") is not None
    cluster = SLURMCluster(security=Security() if tls else None)
    try:
        cluster.adapt(minimum_jobs=0, maximum_jobs=8)
        with Client(cluster) as client:
            print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
            print(dshift.fit(source, float(bandwidth), valley=0.1, store=store))
    finally:
        # Workers are asked to retire before their jobs are cancelled. One that died unseen must not
        # hold us up: jobs that are left then end by themselves when they find no scheduler.
        with suppress(TimeoutError):
            cluster.close(timeout=60)
