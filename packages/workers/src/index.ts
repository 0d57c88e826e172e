/** Engine records: health, metrics scrape, circuit breaker and load accounting. */
export {};
