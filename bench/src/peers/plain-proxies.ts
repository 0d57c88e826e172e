/** A proxy's address, and the servers behind it. */
interface PlainProxy {
  readonly port: number;
  readonly engineUrls: readonly string[];
}

const hostsOf = ({ engineUrls }: PlainProxy): readonly string[] => engineUrls.map((url) => new URL(url).host);

/**
 * nginx as one process: round robin, persistent connections on both sides for the duration of the loads, bodies in
 * memory, and answers forwarded as they arrive.
 */
export function nginxConfiguration(proxy: PlainProxy): string {
  const servers = hostsOf(proxy).map((host) => `    server ${host} max_fails=0;`);
  return `daemon off;
master_process off;
pid nginx.pid;
error_log stderr error;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
  access_log off;
  client_body_temp_path body;
  proxy_temp_path proxy;
  fastcgi_temp_path fastcgi;
  uwsgi_temp_path uwsgi;
  scgi_temp_path scgi;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
  tcp_nodelay on;
  client_max_body_size 64m;
  client_body_buffer_size 128k;
  upstream engines {
${servers.join("\n")}
    keepalive 2048;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:${proxy.port};
    location / {
      proxy_pass http://engines;
      proxy_http_version 1.1;
      proxy_set_header connection "";
      proxy_buffering off;
    }
  }
}
`;
}

/** HAProxy as one process with one thread: round robin, persistent and shared connections. */
export function haproxyConfiguration(proxy: PlainProxy): string {
  const servers = hostsOf(proxy).map((host, index) => `  server engine-${index + 1} ${host}`);
  return `global
  nbthread 1
  maxconn 8192
defaults
  mode http
  option http-keep-alive
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  timeout http-keep-alive 600s
frontend clients
  bind 127.0.0.1:${proxy.port}
  default_backend engines
backend engines
  balance roundrobin
  http-reuse always
${servers.join("\n")}
`;
}
