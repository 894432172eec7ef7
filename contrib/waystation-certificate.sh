#!/bin/sh
# Copies a certificate and its key to where a waystation node reads them. The node takes them over by itself.
#
#   as a deploy hook of certbot, which names the folder in RENEWED_LINEAGE:
#       certbot certonly ... --deploy-hook /usr/local/bin/waystation-certificate
#   by hand, or for anything else that renews certificates:
#       waystation-certificate CERTIFICATE_CHAIN KEY
#
#   WAYSTATION_TLS    folder of the copies, default /etc/waystation/tls
#   WAYSTATION_GROUP  group that may read them, default waystation: that of the node's user
set -eu

folder=${WAYSTATION_TLS:-/etc/waystation/tls}
group=${WAYSTATION_GROUP:-waystation}

if [ "$#" -eq 2 ]; then
    cert=$1 key=$2
elif [ "$#" -eq 0 ] && [ -n "${RENEWED_LINEAGE:-}" ]; then
    cert=$RENEWED_LINEAGE/fullchain.pem key=$RENEWED_LINEAGE/privkey.pem
else
    echo "usage: waystation-certificate CERTIFICATE_CHAIN KEY (or RENEWED_LINEAGE, as certbot sets it)" >&2
    exit 2
fi

install -d -m 0750 -g "$group" "$folder"
trap 'rm -f "$folder/.fullchain.pem.new" "$folder/.privkey.pem.new"' EXIT
# Both copies are whole before the first one is seen; a rename replaces a file at once.
install -m 0640 -g "$group" "$cert" "$folder/.fullchain.pem.new"
install -m 0640 -g "$group" "$key" "$folder/.privkey.pem.new"
mv -f "$folder/.fullchain.pem.new" "$folder/fullchain.pem"
mv -f "$folder/.privkey.pem.new" "$folder/privkey.pem"
