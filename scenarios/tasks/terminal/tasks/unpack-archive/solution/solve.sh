set -e
cd "$(mktemp -d)"
tar -xzf /app/parcel.tar.gz
tar -xzf middle.tgz
tar -xzf inner.tar.gz
cp note.txt /app/answer.txt
