# Ends with 0 if the task is done.
set -e
diff <(printf 'name,orders,spent\nAnn,2,10.25\nZed,1,10.25\nBo,0,0.00\nCy,1,0.00\n') <(tr -d '\r' < /app/report.csv)
