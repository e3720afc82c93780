set -e
mkdir -p site/bin site/pages
echo '<p>hello</p>' > site/pages/index.html
echo 'echo deployed' > site/bin/deploy.sh
echo secret > site/pages/draft.html
chmod 777 site/bin site/pages/index.html
chmod 666 site/bin/deploy.sh
chmod 600 site/pages/draft.html
