"""HTTP services as upstreams: the operations of their OpenAPI document are tools."""
