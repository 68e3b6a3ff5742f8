"""The server's attacks: it sees what every client uploads and what it sent to each."""
