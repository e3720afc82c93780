set -e
python3 - > /app/report.csv <<'END'
import sqlite3
rows = sqlite3.connect("/app/shop.db").execute('''
select name, count(distinct orders.id), coalesce(sum(quantity * price), 0) as spent
from customers left join orders on customer_id = customers.id left join items on order_id = orders.id
group by customers.id order by spent desc, name''')
print("name,orders,spent")
for name, orders, spent in rows:
    print(f"{name},{orders},{spent:.2f}")
END
