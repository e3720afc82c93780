set -e
mkdir parts
python3 - <<'END'
import hashlib
import random

rng = random.Random(7)
names = [f"{rng.getrandbits(32):08x}" for _ in range(15)]
sums = []
for number, name in enumerate(names):
    data = bytes(rng.randrange(256) for _ in range(rng.randrange(100, 400)))
    with open(f"parts/{name}", "wb") as file:
        file.write(data)
    if number < 12:
        sums.append(hashlib.sha256(data).hexdigest())
with open("order.sha256", "w") as file:
    file.write("\n".join(sums) + "\n")
END
