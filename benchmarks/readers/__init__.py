"""What readers of reports and webhook endpoints cost the streams beside them."""
